"""A streaming keyword spotter: trained, quantised, exported, and run on a microcontroller."""
