"""What Dataflow's launcher runs for the template of rounds: FLEX_TEMPLATE_PYTHON_PY_FILE."""

import sys

from meanstream.pipelines.beam.template.launch_template import launch

if __name__ == "__main__":
    launch("rounds", sys.argv[1:])
