//! What we put is what Wireshark's dissector reads, if there is a tshark.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use nfs::compound::{CompoundCall, CompoundReply, is_operation_of};
use nfs::rpc::{self, AuthSys, Call, Credential, Outcome, Reply, put_record};
use nfs::wire::{NfsArgop4, NfsOpnum4, NfsResop4, Nfsstat4};
use nfs::xdr::{Encoder, Opaque, from_bytes};
use xdrgen::{Sampler, Schema};

const SOURCES: [&str; 4] = [
    include_str!("../../src/wire/x/rpc.x"),
    include_str!("../../src/wire/x/rfc7863.x"),
    include_str!("../../src/wire/x/rfc8276.x"),
    include_str!("../../src/wire/x/additions.x"),
];

/// Calls of each operation.
const ROUNDS: usize = 4;

/// What the dissector (4.0) reads otherwise than the RFCs have it, by a word of the value: values of
/// layouts, which are any bytes here, are looked into; the key protection of EXCHANGE_ID and the blocks
/// of WRITE_SAME are not those of the RFCs.
const READ_OTHERWISE: [(NfsOpnum4, &str); 3] = [
    (NfsOpnum4::OP_EXCHANGE_ID, "Sp4Ssv("),
    (NfsOpnum4::OP_GETDEVICEINFO, "LAYOUT4_NFSV4_1_FILES"),
    (NfsOpnum4::OP_WRITE_SAME, "adb_offset"),
];

/// A conversation over TCP as a capture of raw IPv4 packets (pcap, link type 101).
struct Capture {
    bytes: Vec<u8>,
    /// Sequence numbers of the client and of the server.
    sequences: [u32; 2],
}

impl Capture {
    fn new() -> Self {
        let head = [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65535, 101];
        let bytes = head.iter().flat_map(|word| word.to_be_bytes()).collect();
        Self {
            bytes,
            sequences: [1, 1],
        }
    }

    /// A message, from the client (0) or the server (1).
    fn packet(&mut self, from: usize, message: &[u8]) {
        let length = u16::try_from(40 + message.len()).expect("a small message");
        let ends = [([127, 0, 0, 1], 700u16), ([127, 0, 0, 2], 2049)];
        let (source, destination) = (ends[from], ends[1 - from]);
        let mut packet = vec![0x45, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        packet.extend(source.0);
        packet.extend(destination.0);
        packet.extend(source.1.to_be_bytes());
        packet.extend(destination.1.to_be_bytes());
        packet.extend(self.sequences[from].to_be_bytes());
        packet.extend(self.sequences[1 - from].to_be_bytes());
        packet.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(message);
        self.sequences[from] += message.len() as u32;
        let size = packet.len() as u32;
        for word in [0, 0, size, size] {
            self.bytes.extend(word.to_be_bytes());
        }
        self.bytes.extend(packet);
    }
}

/// Arguments and results of an operation, encoded.
#[derive(Default)]
struct Samples {
    arguments: Vec<Vec<u8>>,
    results: Vec<Vec<u8>>,
}

/// Those of each operation by its number.
fn sampled(schema: &Schema, seed: u64) -> BTreeMap<u32, Samples> {
    let mut sampler = Sampler::new(schema, seed).named_only();
    let mut all: BTreeMap<u32, Samples> = BTreeMap::new();
    let number = |bytes: &[u8]| u32::from_be_bytes(*bytes.first_chunk().expect("a number"));
    let wanted: BTreeSet<u32> = (3..76).collect();
    let is_enough = |of: &Samples| of.arguments.len().min(of.results.len()) >= ROUNDS;
    while !wanted.iter().all(|op| all.get(op).is_some_and(is_enough)) {
        let (arguments, result) = (sampler.sample("nfs_argop4"), sampler.sample("nfs_resop4"));
        all.entry(number(&arguments))
            .or_default()
            .arguments
            .push(arguments);
        all.entry(number(&result)).or_default().results.push(result);
    }
    all.retain(|op, _| wanted.contains(op));
    all
}

fn call(xid: u32, minor: u32, arguments: &NfsArgop4<'_>) -> Vec<u8> {
    let mut to = Encoder::default();
    put_record(&mut to, |to| {
        let user = AuthSys {
            machine_name: "client".into(),
            uid: 1000,
            ..AuthSys::default()
        };
        let procedure = (rpc::NFS_PROGRAM, rpc::NFS_VERSION, rpc::PROC_COMPOUND);
        Call::put(to, xid, procedure, &Credential::Sys(user));
        let mut call = CompoundCall::begin(to, "tag".into(), minor);
        call.operation(to, arguments);
        call.finish(to);
    });
    to.into_bytes()
}

fn reply(xid: u32, result: &NfsResop4<'_>) -> Vec<u8> {
    let mut to = Encoder::default();
    put_record(&mut to, |to| {
        let outcome = Outcome::Success;
        to.put(&Reply { xid, outcome });
        let mut reply = CompoundReply::begin(to, Opaque(b"tag"));
        reply.result(to, result);
        reply.finish(to, Nfsstat4::NFS4_OK);
    });
    to.into_bytes()
}

/// A packet as it was read: the operation, and what is wrong with it.
struct Dissected {
    frame: usize,
    operations: String,
    wrong: String,
}

fn dissect(file: &Path) -> Vec<Dissected> {
    let mut command = Command::new("tshark");
    command
        .args(["-n", "-r"])
        .arg(file)
        .args(["-T", "fields", "-E", "separator=|"]);
    for field in [
        "frame.number",
        "nfs.opcode",
        "_ws.malformed",
        "_ws.expert.message",
    ] {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let line = |line: &str| {
        let mut fields = line.split('|').map(str::to_owned);
        let mut field = || fields.next().unwrap_or_default();
        Dissected {
            frame: field().parse().expect("a number"),
            operations: field(),
            wrong: [field(), field()].concat(),
        }
    };
    text.lines().map(line).collect()
}

#[test]
fn a_dissector_reads_what_we_put() {
    if Command::new("tshark").arg("-v").output().is_err() {
        let required = std::env::var("VERVAIN_TEST_PEERS").is_ok_and(|peers| peers == "required");
        assert!(!required, "there is no tshark");
        eprintln!("left out: there is no tshark");
        return;
    }
    let schema = Schema::parse(&SOURCES).expect("the descriptions");
    let mut capture = Capture::new();
    let mut sent = Vec::new();
    for (number, samples) in sampled(&schema, 1) {
        let operation = NfsOpnum4(number);
        let minor = (0..3).find(|minor| is_operation_of(*minor, operation).is_ok());
        for (arguments, result) in samples.arguments.iter().zip(&samples.results).take(ROUNDS) {
            let arguments = from_bytes(arguments).expect("arguments");
            let result = from_bytes(result).expect("a result");
            let xid = sent.len() as u32;
            capture.packet(0, &call(xid, minor.expect("a version"), &arguments));
            sent.push((operation, format!("{arguments:?}")));
            capture.packet(1, &reply(xid, &result));
            sent.push((operation, format!("{result:?}")));
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("all.pcap");
    std::fs::write(&file, &capture.bytes).expect("a capture");
    let read = dissect(&file);
    assert_eq!(read.len(), sent.len());
    let mut wrong = Vec::new();
    for (packet, (operation, what)) in read.iter().zip(&sent) {
        let mut numbers = packet.operations.split(',');
        let has_operation = numbers.any(|read| read == operation.0.to_string());
        let mut others = READ_OTHERWISE.iter();
        let excused = others.any(|(of, word)| of == operation && what.contains(word));
        if !has_operation || (packet.wrong.contains("alformed") && !excused) {
            wrong.push(format!(
                "{} {operation:?} {}: {what}",
                packet.frame, packet.wrong
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        sent.len(),
        wrong.join("\n")
    );
}
