//! The conductor: boots and migrates VMs, step by recorded step
