//! ibverbs-utils.

use super::row::Row;

const PACKAGE: &str = "ibverbs-utils";

pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![
        Row::alone(PACKAGE, "ibv_devices", "").client_says(&["vervain0", "0000ffff7f000001"]),
        Row::alone(PACKAGE, "ibv_devinfo", "-v").client_says(&[
            "hca_id:\tvervain0",
            "state:\t\t\tPORT_ACTIVE (4)",
            "link_layer:\t\tEthernet",
            "GID[  0]:\t\t::ffff:127.0.0.1, RoCE v2",
            "atomic_cap:\t\t\tATOMIC_HCA",
        ]),
        Row::alone(PACKAGE, "ibv_devinfo", "-l").client_says(&["vervain0"]),
        Row::alone(PACKAGE, "ibv_devinfo", "-d nonesuch")
            .refused("IB device 'nonesuch' wasn't found"),
    ];
    for program in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong"] {
        for options in ["-c", "-c -e", "-c -s 1"] {
            rows.push(pingpong(program, options));
        }
    }
    for options in ["-c -s 1000000", "-c -N", "-c -N -e", "-c -t", "-c -o"] {
        rows.push(pingpong("ibv_rc_pingpong", options));
    }
    for options in ["-c", "-c -e -q 12"] {
        rows.push(pingpong("ibv_srq_pingpong", options));
    }
    rows.push(
        Row::by_tcp(PACKAGE, "ibv_xsrq_pingpong", "-g 0")
            .refused("Couldn't Open the XRC Domain 95"),
    );
    rows.into_iter().map(Row::tested).collect()
}

/// Both sides check every byte with `-c`.
fn pingpong(program: &'static str, options: &str) -> Row {
    Row::by_tcp(PACKAGE, program, &format!("-g 0 -n 300 {options}"))
        .says(&["300 iters in"], &["300 iters in"])
        .never("invalid data")
}
