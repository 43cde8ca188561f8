"""What a study tries, and which variant it promotes."""
