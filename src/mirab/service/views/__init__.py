"""What people read: shares, jobs and why they wait, nodes, squatters. Values and sentences, never decisions."""
