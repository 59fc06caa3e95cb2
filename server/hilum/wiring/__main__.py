"""`python -m hilum.wiring NAME`: a child process of the supervisor."""

import gc
import sys

if __name__ == "__main__":
    gc.disable()  # imports leave no garbage: to look for it takes a tenth of a start. `main` enables it
    from hilum.wiring.child import main

    sys.exit(main())
