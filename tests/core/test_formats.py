"""What the compiled core may ask of Python, whose headers differ from version to version."""

import re
from pathlib import Path

import bftrainer._core


def test_no_format_counts_on_a_macro_of_some_versions():
    """Formats that end in '#' need a macro that headers of 3.13 ignore: built there, they fail in 3.11 and 3.12."""
    text = "".join(file.read_text() for file in Path(bftrainer._core.__file__).parent.glob("*.c"))
    formats = re.findall(r'Py\w+_(?:Parse|Build)\w+\([^"]*"([^"]*)"', text)
    assert formats
    assert not [each for each in formats if "#" in each]
