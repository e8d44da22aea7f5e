"""Video and camera in, poses out, and overlays of results; needs the extra `halp-motion[video]`."""
