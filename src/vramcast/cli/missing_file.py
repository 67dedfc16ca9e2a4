"""Whether a command names a file that is not there: that is said without importing much."""

import os


def lacks_file(workload: str) -> bool:
    file = workload.rpartition(":")[0] or workload
    return file.endswith(".py") and not os.path.exists(file)
