//! nic-soft
