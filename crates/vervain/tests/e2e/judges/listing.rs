//! A large directory, listed in pages while others change it and the server is killed.

use std::cell::Cell;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use guest::Job;
use nfs::client::{Client, Files, Options};
use nfs::wire::*;
use nfs::xdr::{Opaque, from_bytes};
use rt::net::Addr;

use super::entries;
use crate::filesystem::{FsServer, image, mount};
use crate::harness::{Place, fixed_port};

/// Entries that one compound makes: two operations each, of 32 less those before.
const AT_ONCE: usize = 12;
/// Compounds under way.
const DEPTH: usize = 16;

async fn connect(core: &rt::Handle, address: SocketAddr) -> Client {
    let options = Options::new(format!("listing {}", fastrand::u64(..)), fastrand::u64(..));
    let client = Client::connect(core, &Addr::Tcp(address), options).await;
    client.expect("a session")
}

/// Makes pipes of these names, which are entries and nothing else.
async fn make(client: &Client, directory: &[u8], names: &[String]) {
    let attributes = [0; 8];
    let mut operations = Vec::new();
    for name in names {
        operations.push(put(directory));
        operations.push(NfsArgop4::Create(Create4Args {
            objtype: Createtype4::Nf4Fifo,
            objname: Opaque(name.as_bytes()),
            createattrs: from_bytes(&attributes).expect("no attributes"),
        }));
    }
    let reply = client.call(&operations).await.expect("an answer");
    reply.ok().expect("made");
}

async fn remove(client: &Client, directory: &[u8], name: &str) {
    let removing = NfsArgop4::Remove(Remove4Args {
        target: Opaque(name.as_bytes()),
    });
    let reply = client.call(&[put(directory), removing]).await;
    reply.expect("an answer").ok().expect("removed");
}

fn put(handle: &[u8]) -> NfsArgop4<'_> {
    NfsArgop4::Putfh(Putfh4Args {
        object: Opaque(handle),
    })
}

/// A page after a cookie: its names, the next cookie, and whether it was the last.
async fn page(client: &Client, directory: &[u8], at: &mut (u64, [u8; 8])) -> (Vec<String>, bool) {
    let listing = NfsArgop4::Readdir(Readdir4Args {
        cookie: at.0,
        cookieverf: at.1,
        dircount: 32 << 10,
        maxcount: 64 << 10,
        attr_request: Bitmap4::EMPTY,
    });
    let reply = client.call(&[put(directory), listing]).await;
    let reply = reply.expect("an answer");
    let last = reply
        .ok()
        .expect("a page")
        .results()
        .expect("results")
        .last();
    let Some(Ok(NfsResop4::Readdir(Ok(page)))) = last else {
        panic!("no page: {last:?}");
    };
    at.1 = page.cookieverf;
    let entries = &page.reply.entries.0;
    at.0 = entries.last().map_or(at.0, |entry| entry.cookie);
    let name = |entry: &Entry4<'_>| String::from_utf8_lossy(&entry.name).into_owned();
    (entries.iter().map(name).collect(), page.reply.eof)
}

/// Adds and removes names until it is told to stop; each is there for a moment. Counts them.
async fn churn(client: Client, directory: Rc<Vec<u8>>, stop: Rc<Cell<bool>>, done: Rc<Cell<u64>>) {
    while !stop.get() {
        let names = vec![format!("churn-{}", fastrand::u64(..))];
        make(&client, &directory, &names).await;
        remove(&client, &directory, &names[0]).await;
        done.set(done.get() + 1);
    }
}

/// The most memory that a process has had, in MiB.
fn memory_mib_max(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("a number") >> 10
}

#[test]
fn a_large_directory_is_listed_once_while_it_changes_and_the_server_is_killed() {
    let count = entries(20_000);
    let place = Place::new();
    let listen = format!("127.0.0.1:{}", fixed_port());
    let mut server = FsServer::start(&place, &listen, &[]);
    let address = server.address;
    let mut core = rt::Core::new(rt::Config::default()).expect("a core");
    let handle = core.handle();
    let stable: Rc<Vec<String>> = Rc::new((0..count).map(|at| format!("stable-{at}")).collect());

    let began = Instant::now();
    let directory = core.block_on(async {
        let client = connect(&handle, address).await;
        let files = Files::new(client.clone());
        files.make_directory("/large", 0o755).await.expect("made");
        let directory = Rc::new(files.find("/large").await.expect("there").handle);
        let next = Rc::new(Cell::new(0));
        let makers = (0..DEPTH).map(|_| {
            let (client, directory) = (client.clone(), Rc::clone(&directory));
            let (stable, next) = (Rc::clone(&stable), Rc::clone(&next));
            handle.spawn(async move {
                while next.get() < stable.len() {
                    let from = next.get();
                    let to = stable.len().min(from + AT_ONCE);
                    next.set(to);
                    make(&client, &directory, &stable[from..to]).await;
                }
            })
        });
        for maker in makers.collect::<Vec<_>>() {
            maker.await.expect("it ends by itself");
        }
        directory
    });
    println!("{count} entries made in {:?}", began.elapsed());

    let began = Instant::now();
    let mut seen = HashSet::new();
    let mut pages = 0;
    let mut at = (0, [0; 8]);
    let mut is_end = false;
    // A third of it before the server is killed, a third after, the rest after another time.
    for until in [count / 3, 2 * count / 3, usize::MAX] {
        let (mut listed, stop) = (Vec::new(), Rc::new(Cell::new(false)));
        let changes = Rc::new(Cell::new(0));
        core.block_on(async {
            let client = connect(&handle, address).await;
            let other = connect(&handle, address).await;
            let (changed, stopped) = (Rc::clone(&changes), Rc::clone(&stop));
            let churning = churn(other, Rc::clone(&directory), stopped, changed);
            let churning = handle.spawn(churning);
            while !is_end && seen.len() + listed.len() < until {
                // Something changes between any two pages.
                let before = changes.get();
                while changes.get() == before {
                    assert!(
                        !churning.is_finished(),
                        "it changes until it is told to stop"
                    );
                    handle.sleep(Duration::from_millis(1)).await;
                }
                let (names, last) = page(&client, &directory, &mut at).await;
                assert!(last || !names.is_empty(), "a page has an entry");
                listed.extend(names.into_iter().filter(|name| name.starts_with("stable")));
                is_end = last;
                pages += 1;
            }
            stop.set(true);
            churning.await.expect("it ends by itself");
            println!("{} changes meanwhile", changes.get());
        });
        for name in listed {
            assert!(!seen.contains(&name), "{name} is told twice");
            seen.insert(name);
        }
        println!(
            "the server has had {} MiB",
            memory_mib_max(server.child.pid())
        );
        if until != usize::MAX {
            server.child.kill();
            server = FsServer::start(&place, &listen, &[]);
        }
    }
    println!("{pages} pages in {:?}", began.elapsed());
    let missing: Vec<_> = stable.iter().filter(|name| !seen.contains(*name)).collect();
    assert!(
        missing.is_empty(),
        "{} are missing: {:?}",
        missing.len(),
        missing.first()
    );
    assert_eq!(seen.len(), count);
}

/// The kernel makes COUNT files and lists them twice, while another client adds and removes names in the same directory.
const BY_KERNEL: &str = r#"
now() { cut -d. -f1 /proc/uptime; }
mkdir /mnt/large && cd /mnt/large || exit 1
{
    n=0
    while test ! -e /tmp/stop; do
        : > /other/large/churn-$n && rm /other/large/churn-$n || exit 1
        n=$((n + 1)); echo $n > /tmp/changes
    done
} &
began=$(now); i=0
while test $i -lt COUNT; do
    : > stable-$i || exit 2
    i=$((i + 1))
    test $((i % 10000)) = 0 && echo "$i made in $(($(now) - began)) s"
done
echo "COUNT entries made in $(($(now) - began)) s, $(cat /tmp/changes) changes meanwhile"
for pass in 1 2; do
    echo 3 > /proc/sys/vm/drop_caches
    began=$(now); before=$(cat /tmp/changes)
    find . -name 'stable-*' > /tmp/listed || exit 3
    echo "listed in $(($(now) - began)) s, $(($(cat /tmp/changes) - before)) changes meanwhile"
    test "$(wc -l < /tmp/listed)" = COUNT || { echo "$(wc -l < /tmp/listed) names"; exit 4; }
    test "$(sort -u /tmp/listed | wc -l)" = COUNT || { echo "a name is told twice"; exit 5; }
done
touch /tmp/stop; wait $! || exit 6
cd /; umount /mnt; umount /other
echo done
"#;

#[test]
fn the_kernel_lists_a_large_directory_once_while_it_changes() {
    let Some(image) = image() else {
        return;
    };
    let place = Place::new();
    let server = FsServer::start(&place, "127.0.0.1:0", &[]);
    let mounts = format!(
        "mkdir /other\n{}{}",
        server.mount("4.2"),
        // A client of its own, as its version is another.
        mount("4.1", server.address, "/other")
    );
    let script = BY_KERNEL.replace("COUNT", &entries(1_000).to_string());
    let job = Job::new(mounts + &script)
        .memory_mib(1024)
        .timeout(Duration::from_secs(14_400));
    let said = image.run(&job).expect("it boots");
    println!("{}", said.text);
    assert_eq!(said.code, 0, "{}", said.console);
    assert!(said.text.ends_with("done\n"), "{}", said.text);
    println!(
        "the server has had {} MiB",
        memory_mib_max(server.child.pid())
    );
}
