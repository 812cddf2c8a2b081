"""The two hypothesis profiles: `make test` runs the quick one, `make test-full` the other."""

import os

from hypothesis import HealthCheck, settings

# No deadline, and no complaint about slow drawing: a busy two-core machine is not a wrong answer.
for name, examples in {"quick": 25, "full": 500}.items():
    settings.register_profile(name, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "quick")
