//! How much is measured.

use std::time::Duration;

/// How much is measured.
#[derive(Clone, PartialEq, Debug)]
pub struct FsScale {
    /// Its name.
    pub name: &'static str,
    /// How often each side has its turn.
    pub rounds: usize,
    /// How long a turn takes.
    pub slice: Duration,
    /// Bytes of the file that is read and written at random, a power of two.
    pub file_bytes: u64,
    /// Bytes of a stream.
    pub stream_bytes: u64,
    /// Files whose attributes are asked for.
    pub files: usize,
    /// Bytes of our data, and of our cache.
    pub ours: (u64, u64),
    /// Bytes that are written before a crash.
    pub recovery_bytes: u64,
}

impl FsScale {
    /// What the goals are about: five seconds a point.
    pub fn standard() -> Self {
        FsScale {
            name: "standard",
            rounds: 5,
            slice: Duration::from_secs(1),
            file_bytes: 256 << 20,
            stream_bytes: 256 << 20,
            files: 1000,
            ours: (4 << 30, 768 << 20),
            recovery_bytes: 1_000_000_000,
        }
    }

    /// For a look.
    pub fn quick() -> Self {
        FsScale {
            name: "quick",
            rounds: 3,
            slice: Duration::from_millis(400),
            file_bytes: 64 << 20,
            stream_bytes: 64 << 20,
            files: 200,
            ours: (2 << 30, 256 << 20),
            recovery_bytes: 200_000_000,
        }
    }

    /// Seconds: whether everything works.
    pub fn tiny() -> Self {
        FsScale {
            name: "tiny",
            rounds: 1,
            slice: Duration::from_millis(20),
            file_bytes: 1 << 20,
            stream_bytes: 4 << 20,
            files: 10,
            ours: (128 << 20, 16 << 20),
            recovery_bytes: 4_000_000,
        }
    }
}
