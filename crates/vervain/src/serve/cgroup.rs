//! The memory that control groups leave this process: version 2, or version 1 beside it.
//!
//! A process is in a group of each hierarchy, whose path `/proc/self/cgroup` tells as seen from the
//! hierarchy's root; `/proc/self/mountinfo` tells where the hierarchy is mounted, and which part of
//! it. A limit holds for all groups below, so the tightest on the way up counts.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// Numbers from here on mean that there is no limit: version 1 has no word for it.
const UNLIMITED: u64 = 1 << 62;

/// A group's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// Bytes that the group may use.
    pub(super) limit: usize,
    /// Bytes that it uses, those that the kernel can take back at once not counted.
    pub(super) used: usize,
}

/// The tightest limit on this process's memory, if there is one.
pub(super) fn memory() -> Option<Memory> {
    memory_below(Path::new("/"))
}

/// The files of one version.
struct Files {
    limit: &'static str,
    used: &'static str,
    /// In `memory.stat`: pages of files that nobody has used for long.
    reclaimable: &'static str,
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};

const V2: Files = Files {
    limit: "memory.max",
    used: "memory.current",
    reclaimable: "inactive_file",
};

/// As [`memory`], where `root` is taken for the root of the file system.
fn memory_below(root: &Path) -> Option<Memory> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = std::fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let mut tightest: Option<Memory> = None;
    for line in groups.lines() {
        // hierarchy:controllers:path; hierarchy 0 without controllers is version 2.
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(group)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let is_v2 = number == "0" && controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|one| one == "memory") {
            continue;
        }
        let files = if is_v2 { V2 } else { V1 };
        let found = mounts
            .lines()
            .filter_map(Mount::parse)
            .filter(|mount| mount.is_memory(is_v2))
            .find_map(|mount| mount.folder_of(Path::new(group)));
        let Some((top, below)) = found else {
            continue;
        };
        let top = root.join(top.strip_prefix("/").unwrap_or(&top));
        for folder in below.ancestors().map(|below| top.join(below)) {
            if let Some(memory) = files.read(&folder)
                && tightest.is_none_or(|known| memory.limit < known.limit)
            {
                tightest = Some(memory);
            }
        }
    }
    tightest
}

/// A line of mountinfo.
struct Mount<'a> {
    root: PathBuf,
    point: PathBuf,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, _source, options) = (after.next()?, after.next()?, after.next()?);
        Some(Mount {
            root: unescape(root),
            point: unescape(point),
            kind,
            options,
        })
    }

    fn is_memory(&self, v2: bool) -> bool {
        if v2 {
            self.kind == "cgroup2"
        } else {
            self.kind == "cgroup" && self.options.split(',').any(|one| one == "memory")
        }
    }

    /// The mount's folder, and below it that of a group. A group outside of what is mounted, as in a
    /// container that sees only its own part, has the mount itself.
    fn folder_of(&self, group: &Path) -> Option<(PathBuf, PathBuf)> {
        let below = group.strip_prefix(&self.root).unwrap_or(Path::new(""));
        let climbs = below
            .components()
            .any(|component| component == Component::ParentDir);
        (!climbs).then(|| (self.point.clone(), below.to_path_buf()))
    }
}

/// A path of mountinfo: blanks and backslashes are three octal digits behind a backslash.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|digits| first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal {
            Some(digits) => {
                let value = digits
                    .iter()
                    .fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                bytes.push(value as u8);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

impl Files {
    fn read(&self, folder: &Path) -> Option<Memory> {
        let number = |name: &str| -> Option<u64> {
            let text = std::fs::read_to_string(folder.join(name)).ok()?;
            text.trim().parse().ok()
        };
        // Version 2 says "max" for no limit.
        let limit = number(self.limit).filter(|&limit| limit < UNLIMITED)?;
        let used = number(self.used).unwrap_or(0);
        let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let reclaimable = stat
            .lines()
            .filter_map(|line| line.split_once(' '))
            .find(|(name, _)| *name == self.reclaimable)
            .and_then(|(_, count)| count.trim().parse().ok())
            .unwrap_or(0);
        Some(Memory {
            limit: usize::try_from(limit).ok()?,
            used: usize::try_from(used.saturating_sub(reclaimable)).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        root
    }

    fn found(files: &[(&str, &str)]) -> Option<(usize, usize)> {
        let root = root(files);
        memory_below(root.path()).map(|memory| (memory.limit, memory.used))
    }

    const MOUNT_V2: &str = "31 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";

    #[test]
    fn version_two_and_the_tightest_on_the_way_up() {
        let slice = "sys/fs/cgroup/system.slice";
        let (service, parent) = (format!("{slice}/v.service"), slice.to_string());
        let all = |own: &'static str, above: &'static str| {
            found(&[
                ("proc/self/cgroup", "0::/system.slice/v.service\n"),
                ("proc/self/mountinfo", MOUNT_V2),
                (&format!("{service}/memory.max"), own),
                (&format!("{service}/memory.current"), "5000\n"),
                (
                    &format!("{service}/memory.stat"),
                    "anon 7\ninactive_file 2000\n",
                ),
                (&format!("{parent}/memory.max"), above),
                (&format!("{parent}/memory.current"), "9000\n"),
            ])
        };
        assert_eq!(all("max\n", "max\n"), None);
        assert_eq!(all("104857600\n", "max\n"), Some((104_857_600, 3000)));
        assert_eq!(all("104857600\n", "1048576\n"), Some((1_048_576, 9000)));
        assert_eq!(all("max\n", "1048576\n"), Some((1_048_576, 9000)));
    }

    #[test]
    fn version_one_beside_an_empty_version_two() {
        let group = "sys/fs/cgroup/memory/a/b";
        let limit = |limit: &'static str| {
            found(&[
                ("proc/self/cgroup", "4:cpu,memory:/a/b\n2:cpuset:/\n0::/\n"),
                (
                    "proc/self/mountinfo",
                    "14 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                     15 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,cpu,memory\n\
                     21 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
                ),
                (&format!("{group}/memory.limit_in_bytes"), limit),
                (&format!("{group}/memory.usage_in_bytes"), "4096\n"),
                (
                    "sys/fs/cgroup/memory/memory.limit_in_bytes",
                    "9223372036854771712\n",
                ),
            ])
        };
        assert_eq!(limit("268435456\n"), Some((268_435_456, 4096)));
        assert_eq!(limit("9223372036854771712\n"), None);
    }

    #[test]
    fn a_container_sees_its_own_part() {
        // The group's path is the host's, and only its own part is mounted.
        let files = [
            ("proc/self/cgroup", "5:memory:/docker/abc\n"),
            (
                "proc/self/mountinfo",
                "40 30 0:32 /docker/abc /sys/fs/cgroup/mem\\040ory ro - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/mem ory/memory.limit_in_bytes", "67108864\n"),
            ("sys/fs/cgroup/mem ory/memory.usage_in_bytes", "0\n"),
        ];
        assert_eq!(found(&files), Some((67_108_864, 0)));
        // With a namespace of its own it seems to be at the root.
        let files = [
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", MOUNT_V2),
            ("sys/fs/cgroup/memory.max", "67108864\n"),
            ("sys/fs/cgroup/memory.current", "0\n"),
        ];
        assert_eq!(found(&files), Some((67_108_864, 0)));
        let climbing = [
            ("proc/self/cgroup", "0::/../other\n"),
            ("proc/self/mountinfo", MOUNT_V2),
            ("sys/fs/other/memory.max", "1\n"),
        ];
        assert_eq!(found(&climbing), None);
    }

    #[test]
    fn without_control_groups_there_is_no_limit() {
        assert_eq!(found(&[]), None);
        let garbage = [
            ("proc/self/cgroup", "nonsense\n::\n"),
            ("proc/self/mountinfo", "nonsense - \n"),
        ];
        assert_eq!(found(&garbage), None);
    }
}
