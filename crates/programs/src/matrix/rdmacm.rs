//! rdmacm-utils.

use super::row::{Check, Meets, Row};

const PACKAGE: &str = "rdmacm-utils";

pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![
        rping("-C 10 -v", "127.0.0.1").says(
            &["ping data: rdma-ping-9: JKLMN"],
            &["server ping data: rdma-ping-9: JKLMN"],
        ),
        rping("-C 3 -v", "::1").says(&["ping data: rdma-ping-2: CDEFG"], &["rdma-ping-2: CDEFG"]),
        rping("-C 10 -v -V -S 4000", "127.0.0.1")
            .says(&["ping data: rdma-ping-9: JKLMN"], &["rdma-ping-9: JKLMN"])
            .never("data mismatch"),
        rping("-C 10 -v -q", "127.0.0.1")
            .says(&["ping data: rdma-ping-9: JKLMN"], &["rdma-ping-9: JKLMN"]),
        by_flags("rping", "-C 3 -v", "-s -P -a 127.0.0.1", "-c -a 127.0.0.1")
            .again_if(LATE)
            .client_says(&["ping data: rdma-ping-2: CDEFG"]),
        by_flags("ucmatose", "-c 4", "", "-s 127.0.0.1").says(ENDED, ENDED),
        by_flags("ucmatose", "-c 2 -C 20 -S 4096", "", "-s 127.0.0.1").says(ENDED, ENDED),
        by_flags("ucmatose", "-m", "", "-s 127.0.0.1").says(ENDED, ENDED),
        by_flags("udaddy", "-c 3", "-b 127.0.0.1", "-s 127.0.0.1").says(TRANSFERRED, TRANSFERRED),
        Row::by_manager(
            PACKAGE,
            "",
            ("rdma_server", "-s 127.0.0.1"),
            ("rdma_client", "-s 127.0.0.1"),
        )
        .says(&["rdma_client: end 0"], &["rdma_server: end 0"]),
        Row::by_manager(
            PACKAGE,
            "-c r",
            ("rdma_xserver", ""),
            ("rdma_xclient", "-s 127.0.0.1"),
        )
        .says(&["rdma_xclient: end 0"], &["rdma_xserver: end 0"]),
        Row::by_manager(
            PACKAGE,
            "-c x",
            ("rdma_xserver", ""),
            ("rdma_xclient", "-s 127.0.0.1"),
        )
        .refused("rdma_create_ep: Invalid argument"),
        by_flags("cmtime", "-c 50", "-b 127.0.0.1", "-s 127.0.0.1").client_says(&["destroy "]),
        by_flags("rcopy", "", "", "{dir}/from 127.0.0.1:{dir}/to").check(Check::Copies {
            from: "from",
            file: "to",
        }),
    ];
    // Without `-T a`, which takes it for an error that its server, when it has sent the last, disconnects.
    for how in ["", "-T b", "-T n", "-T v", "-T r", "-f ip -i 0"] {
        rows.push(stream("rstream", how));
    }
    for how in ["", "-T a", "-T b", "-T n", "-T v"] {
        // Its server listens before it says how much may be mapped, and clients may be as quick.
        rows.push(stream("riostream", how).again_if("riomap: Cannot allocate memory"));
    }
    rows.push(
        by_flags("udpong", "-C 10 -S 64", "-b 127.0.0.1", "-s 127.0.0.1")
            .client_says(&["bytes"])
            .waits_for("rsockets of datagrams"),
    );
    for address in [
        "-m 239.1.2.3",
        "-b 127.0.0.1 -m 239.1.2.4",
        "-b ::1 -m ff0e::7",
    ] {
        let options = format!("-c 2 {address}");
        rows.push(
            by_flags("mckey", &options, "", "-s")
                .meets(Meets::Says("receiving data transfers"))
                .says(TRANSFERRED, TRANSFERRED),
        );
    }
    rows.into_iter().map(Row::tested).collect()
}

const TRANSFERRED: &[&str] = &["data transfers complete\ntest complete\nreturn status 0"];
const ENDED: &[&str] = &["test complete\nreturn status 0"];

/// Both sides of one program, each with flags of its own.
fn by_flags(program: &'static str, options: &str, server: &str, client: &str) -> Row {
    Row::by_manager(PACKAGE, options, (program, server), (program, client))
}

/// An rping's thread asks for another event when the program has taken the channel apart, which does not wait for it.
const LATE: &str = "rdma_get_cm_event: ";

fn rping(options: &str, address: &str) -> Row {
    let side = |flag| format!("{flag} -a {address}");
    by_flags("rping", options, &side("-s"), &side("-c")).again_if(LATE)
}

fn stream(program: &'static str, how: &str) -> Row {
    let options = format!("-S 4096 -I 5 -C 10 {how}");
    by_flags(program, &options, "-b 127.0.0.1", "-s 127.0.0.1").says(
        &["4k      10      5       400k"],
        &["4k      10      5       400k"],
    )
}
