//! What every file system must do.

use crate::rig::fixture;

// Each step of a program waits for the drive.
conformance::files_tests!(fixture(), 20);
