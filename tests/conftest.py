"""One thread for numpy, here and in the servers that tests start, before anything loads it.

On matrices as small as those of tests a second thread takes up to ten times the CPU time, and two test
processes on two cores would have four.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
