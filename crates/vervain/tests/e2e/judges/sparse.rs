//! What 4.2 brings, and what processes and machines hold against each other.

use guest::Job;

use super::peer;
use crate::filesystem::{FsServer, image, mount};
use crate::harness::Place;

/// xfs_io asks the kernel directly; `expect` compares what it finds. The shell has a `cp` and a `touch` of its own,
/// which know less.
const SPARSE: &str = r#"
set -e
expect() { test "$1" = "$2" || { echo "line $3: $1 instead of $2"; exit 1; }; }
at() { xfs_io -r -c "seek $1 $2" $3 | awk 'NR == 2 { print $2 }'; }
sum() { md5sum < $1; }
cd /mnt

# Holes and room: SEEK, ALLOCATE, DEALLOCATE.
xfs_io -f -c 'pwrite -q -S 0x61 0 256k' -c fsync -c 'fpunch 64k 64k' f
expect "$(at -h 0 f)" 65536 $LINENO
expect "$(at -d 65536 f)" 131072 $LINENO
expect "$(at -h 131072 f)" 262144 $LINENO
expect "$(at -d 262144 f)" EOF $LINENO
/bin/cp f /tmp/f
expect "$(sum f)" "$(sum /tmp/f)" $LINENO
expect "$(dd if=f bs=64k skip=1 count=1 2>/dev/null | tr -d '\000' | wc -c)" 0 $LINENO
xfs_io -c 'falloc 1m 1m' f
expect "$(stat -c %s f)" 2097152 $LINENO
expect "$(dd if=f bs=64k skip=4 2>/dev/null | tr -d '\000' | wc -c)" 0 $LINENO
truncate -s 200k f
expect "$(at -h 131072 f)" 204800 $LINENO

# COPY and CLONE: what is copied stays as it was when the source changes.
xfs_io -f -c 'copy_range f' copied
cmp f copied
xfs_io -f -c 'reflink f 0 0 204800' cloned
cmp f cloned
xfs_io -f -c 'pwrite -q -S 0x62 0 4k' -c fsync f
expect "$(head -c 1 f)$(head -c 1 copied)$(head -c 1 cloned)" baa $LINENO
/bin/cp --reflink=always f also && cmp f also
/bin/cp --sparse=always f holes && cmp f holes

# Maps of two processes.
xfs_io -f -c 'truncate 1m' -c 'mmap -rw 0 1m' -c 'mwrite -S 0x6d 5000 9000' -c 'msync -s' m
expect "$(tr -d '\000' < m | wc -c)" 9000 $LINENO
xfs_io -r -c 'mmap -r 0 1m' -c 'mread -v 5000 4' m | grep -q '6d 6d 6d 6d'

# Extended attributes.
setfattr -n user.colour -v blue f; setfattr -n user.empty f
expect "$(getfattr --only-values -n user.colour f)" blue $LINENO
expect "$(getfattr f | grep -c user)" 2 $LINENO
setfattr -x user.empty f
expect "$(getfattr f | grep -c user)" 1 $LINENO
getfattr -n user.empty f 2>/dev/null && exit 1

# A tree with all of it, copied.
mkdir -p tree/sub tree/empty; /bin/cp f tree/data; ln tree/data tree/sub/hard; ln -s ../data tree/sub/soft; mkfifo tree/pipe
chmod 2751 tree/sub; chmod 4711 tree/data; chown 12:34 tree/empty; setfattr -n user.a -v b tree/data
/bin/touch -h -d '2001-02-03 04:05:06.789' tree/data tree/sub/soft tree/empty
show() { (cd $1; find . | sort | while read n; do stat -c '%n %f %h %u %g' $n; test -d $n || stat -c '%s %y' $n; test -f $n && md5sum < $n; done; getfattr --only-values -n user.a data); }
/bin/cp -a tree back
show tree > /tmp/1; show back > /tmp/2; diff /tmp/1 /tmp/2
rm -r back

# Locks of two processes; a name that goes while it is open, and is read by who has it.
(flock 9; echo held > /tmp/held; while test ! -e /tmp/enough; do sleep 0.1; done) 9> lock &
while test ! -e /tmp/held; do sleep 0.1; done
flock -n lock true && exit 1
flock -s -n lock true && exit 1
touch /tmp/enough; wait
flock -n lock true
echo kept > gone; exec 3< gone; rm gone; expect "$(cat <&3)" kept $LINENO; exec 3<&-
ls -A | grep nfs && exit 1
cd /; umount /mnt
echo done
"#;

#[test]
fn holes_copies_maps_locks_and_attributes_are_as_on_a_disk() {
    let names = ["xfs_io", "cp", "touch", "flock", "setfattr", "getfattr"];
    let programs = names.map(|name| peer(&format!("VERVAIN_TEST_{}", name.to_uppercase()), name));
    let Some(image) = image() else {
        return;
    };
    let place = Place::new();
    let server = FsServer::start(&place, "127.0.0.1:0", &[]);
    let mut job = Job::new(server.mount("4.2") + SPARSE);
    for program in programs {
        let Some(program) = program else { return };
        job = job.program(program).expect("a program");
    }
    let said = image.run(&job).expect("it boots");
    assert_eq!(said.code, 0, "{}", said.console);
    assert!(said.text.ends_with("done\n"), "{}", said.text);
}

/// Adds to a number in a database and to one in a file under a lock, again and again.
const COUNTING: &str = r#"
for i in $(seq ROUNDS); do
    sqlite3 -bail -cmd '.timeout 100000' /mnt/db 'update t set n = n + 1' || exit 1
    flock /mnt/lock sh -c 'n=$(cat /mnt/n); echo $((n + 1)) > /mnt/n' || exit 2
done
umount /mnt
echo done
"#;

#[test]
fn two_machines_exclude_each_other_by_locks() {
    let (Some(image), Some(sqlite), Some(flock)) = (
        image(),
        peer("VERVAIN_TEST_SQLITE", "sqlite3"),
        peer("VERVAIN_TEST_FLOCK", "flock"),
    ) else {
        return;
    };
    let rounds = if super::is_deep() { 200 } else { 10 };
    let place = Place::new();
    let server = FsServer::start(&place, "127.0.0.1:0", &[]);
    // Each says that it is there, and waits for the other: both count at the same time.
    let meet = |own, other| {
        format!("touch /mnt/{own}; while ! ls /mnt | grep -q {other}; do sleep 0.2; done\n")
    };
    let prepare =
        "sqlite3 /mnt/db 'create table t (n); insert into t values (0)'; echo 0 > /mnt/n\n";
    let counting = COUNTING.replace("ROUNDS", &rounds.to_string());
    let mount = server.mount("4.2");
    // A kernel tells servers the name of its machine: two of one name would be one that has restarted.
    let job = |script: String| {
        let job = Job::new(script).program(&sqlite);
        job.and_then(|job| job.program(&flock)).expect("programs")
    };
    let one = job(format!(
        "hostname one\n{mount}{prepare}{}{counting}",
        meet("one", "two")
    ));
    let two = job(format!(
        "hostname two\n{mount}{}{counting}",
        meet("two", "one")
    ));
    let machines = [one, two].map(|job| image.start(&job).expect("it boots"));
    for machine in machines {
        let said = machine.finish().expect("it comes to an end");
        assert_eq!(said.code, 0, "{}", said.console);
    }
    let check = "cat /mnt/n; sqlite3 /mnt/db 'select n from t; pragma integrity_check'\n";
    let said = image.run(&job(mount + check)).expect("it boots");
    assert_eq!(said.text, format!("{0}\n{0}\nok\n", 2 * rounds));
}

/// What is mounted from two addresses: /mnt by one client of the kernel's, and /b by another.
const ADDRESSES: &str = r#"
set -e
for port in $PORTS; do grep -q ":$port 01 " /proc/net/tcp || { echo "no connection to $port"; exit 1; }; done

# What one has written and closed the other finds: also when the one has counted its changes by itself before, each page's,
# under a write delegation.
same() { test "$(cat $1)" = "$2" || { echo "$1 is not $2: $(head -c 20 $1)"; exit 2; }; }
for i in 1 2 3; do
    dd if=/dev/urandom of=/mnt/f bs=64k count=4 2>/dev/null; cmp /mnt/f /b/f
    echo $i b > /b/f; same /mnt/f "$i b"
    dd if=/dev/urandom of=/b/f bs=64k count=4 2>/dev/null; cmp /mnt/f /b/f
    echo $i mnt > /mnt/f; same /b/f "$i mnt"
    echo $i new > /b/new$i; same /mnt/new$i "$i new"
done

# Locks of ranges (fcntl).
sqlite3 /mnt/db 'create table t (n); insert into t values (0)'
{
    echo 'begin exclusive; update t set n = n + 1;'
    echo '.shell touch /tmp/held; while test ! -e /tmp/enough; do sleep 0.1; done'
    echo 'commit;'
} | sqlite3 -bail /mnt/db &
while test ! -e /tmp/held; do sleep 0.1; done
said=$(sqlite3 /b/db 'update t set n = n + 1' 2>&1) && { echo "it is not locked: $said"; exit 3; }
case "$said" in *'is locked'*) ;; *) echo "$said"; exit 3 ;; esac
touch /tmp/enough; wait
sqlite3 /b/db 'update t set n = n + 1'
test "$(sqlite3 /mnt/db 'select n from t; pragma integrity_check')" = "$(printf '2\nok')"
umount /mnt; umount /b
echo done
"#;

#[test]
fn a_machine_that_mounts_both_addresses_sees_one_file_system() {
    let (Some(image), Some(sqlite)) = (image(), peer("VERVAIN_TEST_SQLITE", "sqlite3")) else {
        return;
    };
    let place = Place::new();
    let server = FsServer::start(&place, "127.0.0.1:0", &["--listen", "127.0.0.1:0"]);
    let [also] = server.also[..] else {
        panic!("it listens at {:?} too", server.also);
    };
    // Of one version the kernel would find out that both are one server, and have one client for it: versions make it two.
    let mounts = [
        "mkdir /b\n".to_string(),
        server.mount("4.2"),
        mount("4.1", also, "/b"),
    ];
    let ports = [server.address, also].map(|address| format!("{:04X}", address.port()));
    let script = format!(
        "{}PORTS='{}'\n{ADDRESSES}",
        mounts.concat(),
        ports.join(" ")
    );
    let job = Job::new(script).program(sqlite).expect("a program");
    let said = image.run(&job).expect("it boots");
    assert_eq!(
        (said.code, said.text.as_str()),
        (0, "done\n"),
        "{}",
        said.console
    );
}
