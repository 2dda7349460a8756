//! A client of HTTPS that is not ours: `curl`.

use std::path::Path;
use std::process::Command;

use berth_tests::processes::Answer;
use berth_tls::Files;

/// Returns whether it is installed; says so where it is not, and fails where it must be.
pub(crate) fn is_there() -> bool {
    let there = Command::new("curl").arg("--version").output().is_ok();
    if !there {
        let required = std::env::var("BERTH_REAL").is_ok_and(|value| value == "require");
        assert!(!required, "curl is required here and is not installed");
        eprintln!("skipped: curl is not installed");
    }
    there
}

/// Returns the command that asks for a URL, trusting this authority, with this certificate.
pub(crate) fn of(url: &str, ca: Option<&Path>, files: Option<&Files>) -> Command {
    let mut command = Command::new("curl");
    command.args([
        "--silent",
        "--show-error",
        "--noproxy",
        "*",
        "--max-time",
        "60",
    ]);
    command.args(["--write-out", "\n%{http_code}"]);
    if let Some(ca) = ca {
        command.arg("--cacert").arg(ca);
    }
    if let Some(files) = files {
        command.arg("--cert").arg(&files.cert);
        command.arg("--key").arg(&files.key);
    }
    command.arg(url);
    command
}

/// Returns status and body of the answer, or why there is none.
pub(crate) fn answer(command: Command) -> Result<(u16, String), String> {
    let answer = Answer::of(command);
    if answer.status != Some(0) {
        return Err(format!("{:?}: {}", answer.status, answer.stderr));
    }
    let (body, status) = answer.stdout.rsplit_once('\n').expect("a status");
    Ok((status.parse().expect("a number"), body.to_owned()))
}
