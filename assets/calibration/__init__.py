"""Constants of the timing layer, fitted to measurements by replaying them."""
