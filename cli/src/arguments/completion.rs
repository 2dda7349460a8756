//! The arguments of `berth completion`.

use clap::Args;
use clap_complete::Shell;

/// Arguments of `berth completion`.
#[derive(Debug, Args)]
#[command(after_help = "\
For the running shell:
  source <(berth completion bash)        zsh: the same, after compinit
  berth completion fish | source
For every new one:
  berth completion bash > /etc/bash_completion.d/berth
  berth completion zsh > /usr/local/share/zsh/site-functions/_berth
  berth completion fish > ~/.config/fish/completions/berth.fish")]
pub struct Completion {
    /// The shell that is to complete the commands and options of berth
    #[arg(value_enum)]
    pub shell: Shell,
}
