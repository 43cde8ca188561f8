"""What goes in and out: labels, conversations, files of any size."""
