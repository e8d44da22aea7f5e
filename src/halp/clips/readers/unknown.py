"""What to say about a source that no reader recognises: what was found there, and what to do about it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from halp.clips.source_files import walk
from halp.errors import InputError

_VIDEOS = frozenset(".mp4 .avi .mov .mkv .webm .m4v .mpg .mpeg .wmv".split())
_PICTURES = frozenset(".jpg .jpeg .png .bmp .tif .tiff .webp".split())
# Endings that tell what a file is, and how to get joints out of it.
_ADVICE = {
    ".fbx": "export the animation as BVH or C3D",
    ".blend": "export the animation as BVH",
    ".slp": "export it from SLEAP as an analysis file (.h5 or .csv)",
    ".rrd": "export the joint positions as CSV",
    ".mkv": "process Azure Kinect recordings with the body tracking SDK to JSON",
    ".bag": "export the joint positions as CSV",
    ".xlsx": "save the sheet with joint positions as CSV",
    ".zip": "unpack the archive",
    ".tar": "unpack the archive",
    ".gz": "unpack the archive",
    ".7z": "unpack the archive",
}
_MOST = 10_000


def describe_unknown(path: Path) -> str:
    """One sentence: how many files of which kind there are, and the remedy."""
    try:
        files = [file for file, _ in zip(walk(path), range(_MOST))]
    except (InputError, OSError) as error:
        return str(error)
    if not files:
        return f"the folder '{path}' is empty; put recordings into it, or check the path"
    endings = Counter(file.suffix.lower() for file in files)
    kinds = ", ".join(f"{count} {ending or 'without ending'}" for ending, count in endings.most_common(4))
    found = f"'{path}'" if path.is_file() else f"'{path}' holds {len(files)} files ({kinds}), which"
    if endings.keys() <= _VIDEOS | _PICTURES:
        what = "video" if endings.keys() & _VIDEOS else "pictures"
        return (
            f"{found} {'are' if path.is_dir() else 'is'} {what}, not poses; run a pose estimator first (MediaPipe, MMPose, "
            "OpenPose, YOLO, …) and give halp its output"
        )
    for ending, remedy in _ADVICE.items():
        if ending in endings:
            return f"{found} {'are' if path.is_dir() else 'is'} of no format that halp reads; {remedy}"
    return (
        f"{found} {'are' if path.is_dir() else 'is'} of no format that halp recognises; `halp formats` lists those it reads, "
        "and a table with the columns clip, frame, joint, x, y, z fits any skeleton"
    )
