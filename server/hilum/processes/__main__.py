"""`python -m hilum.processes NAME`: a child process of the supervisor."""

import gc
import sys

if __name__ == "__main__":
    # imports leave no garbage, and a collection takes a tenth of a start; `main` enables it
    gc.disable()
    from hilum.processes.child import main

    sys.exit(main())
