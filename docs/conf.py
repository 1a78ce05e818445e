"""The documentation site: `python -m sphinx -W --keep-going -b html docs build/site`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

from taciturn.version import VERSION

project = "Taciturn"
author = "The Taciturn authors"
version = release = VERSION
language = "en_GB"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx_click",
    "sphinx_copybutton",
    "settings_table",
    "front_door",
    "plain_docstrings",
    "command_pages",
]
exclude_patterns = ["reproduction/figures/*.md"]

html_theme = "furo"
html_title = "Taciturn"
html_static_path = ["static"]
html_css_files = ["taciturn.css"]
html_copy_source = False
html_show_copyright = False

default_role = "code"
smartquotes = False
python_use_unqualified_type_names = True
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 80
autodoc_member_order = "bysource"

myst_heading_anchors = 4
myst_links_external_new_tab = False
copybutton_exclude = ".linenos, .gp, .go"

nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_merge_streams = True
