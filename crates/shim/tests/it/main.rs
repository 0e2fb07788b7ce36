//! What programs rely on.

mod layout;
