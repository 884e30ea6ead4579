"""The bench's own tests import the runner as it imports itself: from this folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
