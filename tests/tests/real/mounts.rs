//! Mounts of an agent as the kernel makes them: see `berth_compute_agent::volumes::kernel_checks`.

use std::fs::File;

use berth_compute_agent::volumes::kernel_checks;
use berth_tests::lab::LoopDevice;

pub(crate) fn real_mounts_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("device");
    File::create(&file).unwrap().set_len(128 << 20).unwrap();
    let device = LoopDevice::over(&file).unwrap();
    kernel_checks::real_mounts_come_and_go(folder.path(), device.path());
}

pub(crate) fn what_looks_empty_and_was_given_away_is_not_formatted() {
    let folder = tempfile::tempdir().unwrap();
    kernel_checks::what_looks_empty_and_was_given_away_is_not_formatted(folder.path());
}
