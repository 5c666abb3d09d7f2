"""Mixed precision: autocast, and GradScaler for float16."""

from .autocast_mode import autocast, autocast_table, custom_bwd, custom_fwd, is_autocast_available
from .grad_scaler import GradScaler
