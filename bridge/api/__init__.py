"""What a user names."""
