"""The client: platforms, data on devices, runs on several of them."""
