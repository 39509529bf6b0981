"""Machine code: the templates that we patch, and capstone's second opinion on them."""
