"""Write the metadata of the Flex templates: `python docker/dataflow/generate_templates.py`."""

from __future__ import annotations

import json
from pathlib import Path

from meanstream.pipelines.beam.template.template_parameters import TEMPLATES, Template

FOLDER = Path(__file__).parent


def metadata_text(template: Template) -> str:
    """Give the file's text."""
    return json.dumps(template.metadata(), indent=2) + "\n"


if __name__ == "__main__":
    for template in TEMPLATES.values():
        (FOLDER / f"{template.key}.json").write_text(metadata_text(template))
