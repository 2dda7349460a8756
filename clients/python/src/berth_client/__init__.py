"""Client of Berth, a control plane for clusters of virtual machines."""
