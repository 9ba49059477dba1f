"""What every analysis needs: columns, the scope of one loader, intervals of differences."""
