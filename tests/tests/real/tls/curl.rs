//! A client of HTTPS that is not ours: `curl`.

use std::path::Path;
use std::process::Command;

use berth_tests::processes::Answer;
use berth_tls::Files;

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
