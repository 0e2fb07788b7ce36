//! pjdfstest, which asks what POSIX says of some hundred errors, modes and times, as several users.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use guest::Job;

use super::{is_deep, peer};
use crate::filesystem::{FsServer, image};
use crate::harness::Place;

const CONFIGURATION: &str = "
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.05
[dummy_auth]
entries = [[\"nobody\", \"nobody\"], [\"tests\", \"tests\"]]
";

const USERS: &str =
    "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\ntests:x:1001:1001::/:/bin/sh\n";
const GROUPS: &str = "root:x:0:\nnobody:x:65534:\ntests:x:1001:\n";

/// How each test ended, of a run's output between two lines.
fn outcomes<'a>(text: &'a str, of: &str) -> BTreeMap<&'a str, &'a str> {
    let begin = format!("judged {of}\n");
    let part = text.split_once(&begin).map_or("", |(_, rest)| rest);
    let part = part.split_once("judged end").map_or(part, |(part, _)| part);
    let outcome = |line: &'a str| {
        let (name, outcome) = line.split_once(' ')?;
        let outcome = outcome.trim();
        let is_one = ["ok", "FAILED", "skipped"].contains(&outcome) && name.contains("::");
        is_one.then_some((name, outcome))
    };
    part.lines().filter_map(outcome).collect()
}

#[test]
fn posix_is_kept_as_by_a_local_file_system() {
    let (Some(image), Some(judge), Some(mkfs)) = (
        image(),
        peer("VERVAIN_TEST_PJDFSTEST", "pjdfstest"),
        peer("VERVAIN_TEST_MKFS_EXT4", "mkfs.ext4"),
    ) else {
        return;
    };
    let place = Place::new();
    let server = FsServer::start(&place, "127.0.0.1:0", &[]);
    let write = |name: &str, content: &str| {
        let path = place.path(name);
        std::fs::write(&path, content).expect("written");
        path
    };
    // The guest's own to compare with: memory, and if there is time a disk.
    let rivals: &[&str] = if is_deep() { &["ram", "ext"] } else { &["ram"] };
    let disk = place.path("disk");
    let file = std::fs::File::create(&disk).expect("made");
    file.set_len(256 << 20).expect("as long");
    let made = Command::new(mkfs).arg("-q").arg(&disk).status();
    assert!(made.expect("it starts").success());
    let script = format!(
        "{}
        load virtio_blk; load ext4
        mkdir /ext /ram
        mount -t ext4 /dev/vda /ext || exit 98
        mount -t tmpfs ram /ram
        for place in mnt {}; do
            mkdir /$place/judged; chmod 755 /$place /$place/judged
            echo \"judged $place\"
            NO_COLOR=1 pjdfstest -c /pjdfstest.toml -p /$place/judged 2>&1
            echo \"judged end\"
        done\n",
        server.mount("4.2"),
        rivals.join(" "),
    );
    let job = Job::new(script)
        .memory_mib(1024)
        .timeout(Duration::from_secs(1800))
        .disk(&disk)
        .file(write("toml", CONFIGURATION), "/pjdfstest.toml")
        .file(write("users", USERS), "/etc/passwd")
        .file(write("groups", GROUPS), "/etc/group")
        .program(judge)
        .expect("a program");
    let said = image.run(&job).expect("it boots");
    assert_eq!(said.code, 0, "{}", said.console);

    let show = |place: &str, of: &BTreeMap<&str, &str>| {
        let count = |outcome: &str| of.values().filter(|one| **one == outcome).count();
        let [ok, failed, skipped] = ["ok", "FAILED", "skipped"].map(count);
        println!("{place}: {ok} passed, {failed} failed, {skipped} skipped");
        ok
    };
    let ours = outcomes(&said.text, "mnt");
    assert!(show("mnt", &ours) > 300, "{}", said.text);
    for rival in rivals {
        let theirs = outcomes(&said.text, rival);
        show(rival, &theirs);
        // A skipped test asks for less than there is here: as many links as fit into 16 bits.
        let is_worse = |name: &&str| {
            theirs[*name] == "ok" && !["ok", "skipped"].contains(ours.get(*name).unwrap_or(&""))
        };
        let worse: Vec<_> = theirs.keys().copied().filter(is_worse).collect();
        assert!(worse.is_empty(), "{worse:?}\n{}", said.text);
    }
}
