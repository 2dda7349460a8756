//! How far a transfer is, out of libvirt's figures.

use berth_domain::transfer::{Amount, Phase, TransferProgress};

use super::{DomainState, DomainStatus, JobStats, paused};

/// Returns how far the transfer is that `job` stands for, of a domain in that state.
pub(super) fn of(job: &JobStats, status: DomainStatus) -> TransferProgress {
    let figure = |name: &str| job.all.get(name).copied().unwrap_or(0);
    let amount = |kind: &str| Amount {
        total: figure(&format!("{kind}_total")),
        processed: figure(&format!("{kind}_processed")),
        remaining: figure(&format!("{kind}_remaining")),
    };
    let (memory, disk) = (amount("memory"), amount("disk"));
    let is_paused = status.state == DomainState::Paused;
    let phase = if is_paused && status.reason == paused::POST_COPY {
        Phase::PostCopy
    } else if is_paused {
        Phase::Switch
    } else if memory.total == 0 && disk.total == 0 {
        Phase::Setup
    } else {
        Phase::PreCopy
    };
    let pages = figure("memory_dirty_rate");
    TransferProgress {
        phase,
        memory,
        disk,
        dirty_bytes_per_s: pages.saturating_mul(figure("memory_page_size")),
        bytes_per_s: figure("memory_bps").saturating_add(figure("disk_bps")),
        elapsed_ms: job.elapsed_ms,
        downtime_ms: job.downtime_ms,
        iteration: figure("memory_iteration"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::job::JobKind;

    #[test]
    fn figures_become_progress() {
        let all = [
            ("memory_total", 100),
            ("memory_processed", 70),
            ("memory_remaining", 30),
            ("disk_total", 50),
            ("memory_bps", 20),
            ("disk_bps", 5),
            ("memory_dirty_rate", 2),
            ("memory_page_size", 4),
            ("memory_iteration", 3),
            ("time_elapsed", 7),
        ];
        let all = all.map(|(name, n)| (name.to_owned(), n)).into();
        let job = JobStats::new(JobKind::Unbounded, all);
        let running = DomainStatus {
            state: DomainState::Running,
            reason: 1,
        };
        let progress = of(&job, running);
        assert_eq!(progress.phase, Phase::PreCopy);
        assert_eq!((progress.total(), progress.remaining()), (150, 30));
        assert_eq!((progress.dirty_bytes_per_s, progress.bytes_per_s), (8, 25));
        assert_eq!((progress.iteration, progress.elapsed_ms), (3, 7));
        let post_copy = DomainStatus {
            state: DomainState::Paused,
            reason: paused::POST_COPY,
        };
        assert_eq!(of(&job, post_copy).phase, Phase::PostCopy);
    }
}
