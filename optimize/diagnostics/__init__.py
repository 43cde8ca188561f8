"""What is to be known of a champion beside its agreement."""
