"""Learn human actions from skeletons without labels."""
