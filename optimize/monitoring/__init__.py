"""A judge in use: drift, flips, unlabelled traffic, people's feedback."""
