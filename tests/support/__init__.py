"""What several tests use: scripted servers, a browser, labels, studies, results."""
