"""What `spark-submit` runs: `spark-submit … submit.py report --output …`, as flockmq-analytics itself would."""

import sys

from flockmq_analytics.cli import main

sys.exit(main())
