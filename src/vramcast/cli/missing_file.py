"""Whether a command names a file that does not exist, checked without slow imports."""

import os


def lacks_file(workload: str) -> bool:
    file = workload.rpartition(":")[0] or workload
    return file.endswith(".py") and not os.path.exists(file)
