//! The programs that packages have, each with its command line as the program itself defines it.

use clap::CommandFactory as _;

/// One program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name of the file.
    pub name: &'static str,
    /// The section of the manual: 1 for commands of users, 8 for servers.
    pub section: &'static str,
    /// Returns the command line.
    pub command: fn() -> clap::Command,
    /// Files and directories of the program, and what they are for.
    pub files: &'static [(&'static str, &'static str)],
}

/// All of them.
pub const ALL: &[Program] = &[
    Program {
        name: "berth",
        section: "1",
        command: berth_cli::arguments::Arguments::command,
        files: &[],
    },
    Program {
        name: "berth-scheduler",
        section: "8",
        command: berth_scheduler::flags::Flags::command,
        files: &[
            ("/etc/berth/scheduler.toml", "The configuration."),
            (
                "/run/berth-scheduler.start",
                "How the service starts a member for the first time.",
            ),
            ("/var/lib/berth/scheduler", "The member's data directory."),
        ],
    },
    Program {
        name: "berth-conductor",
        section: "8",
        command: berth_conductor::flags::Flags::command,
        files: &[
            ("/etc/berth/conductor.toml", "The configuration."),
            (
                "/var/lib/berth/conductor",
                "The addresses of the schedulers.",
            ),
        ],
    },
    Program {
        name: "berth-compute-agent",
        section: "8",
        command: berth_compute_agent::flags::Flags::command,
        files: &[
            ("/etc/berth/compute-agent.toml", "The configuration."),
            (
                "/var/lib/berth",
                "Images, disks and consoles of guests, and the addresses of the schedulers.",
            ),
        ],
    },
    Program {
        name: "berth-csi-controller",
        section: "8",
        command: berth_csi_controller::flags::Flags::command,
        files: &[
            ("/etc/berth/csi-controller.toml", "The configuration."),
            (
                "/run/berth/csi-controller/csi.sock",
                "The socket of the Container Storage Interface.",
            ),
        ],
    },
    Program {
        name: "berth-csi-operator",
        section: "8",
        command: berth_csi_operator::flags::Flags::command,
        files: &[("/etc/berth/csi-operator.toml", "The configuration.")],
    },
];
