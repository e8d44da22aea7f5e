"""Film and camera in, poses out, and pictures with what was recognised; needs the extra
`halp-motion[video]`.
"""
