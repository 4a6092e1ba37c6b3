"""Images, documents, audio and video in messages and results, in a form that belongs to no provider.

    recorder.user(["What is in this picture?", Image.from_bytes(data, "image/png")])
    call.result(["The page:", Document.from_url("https://example.com/report.pdf")])

``transcript.build`` writes them as each provider needs them, and lists in ``losses`` what the provider does not accept.
It does the same with the media in messages of another provider. ``transcript.parts_of`` returns the text and the media
of a payload.
"""

from agent_memory_log.media.formats import FORMATS
from agent_memory_log.media.model import MAX_CONTENT_BYTES, Audio, Document, Image, Media, Video

__all__ = [
    "FORMATS",
    "MAX_CONTENT_BYTES",
    "Audio",
    "Document",
    "Image",
    "Media",
    "Video",
]
