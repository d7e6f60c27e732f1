"""What people read: one self-contained HTML file, and findings for tickets."""
